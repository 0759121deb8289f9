"""What is done with a trained model: refined graphs, explanations, new nodes, the classifier."""
