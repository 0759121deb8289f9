"""Names that would do harm on a page that takes them for HTML."""

NODE = "<img src=x onerror=hacked()> {}"
CLASSES = ["</script><script>hacked()</script>", "<b>bold</b> & %{x}", "plain"]
