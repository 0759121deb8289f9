"""Search of settings on validation accuracy, and the file of settings that it writes."""
