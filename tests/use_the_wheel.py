"""Use an installed graphglow as a user would, with no extra and no repository: ``make wheel``."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import graphglow

home = Path(graphglow.__file__).resolve()
assert "site-packages" in home.parts, f"this is not the installed package: {home}"
assert (home.parent / "py.typed").exists()
files = [str(file) for file in importlib.metadata.files("graphglow") or []]
foreign = [file for file in files if not file.startswith(("graphglow", "../../../bin/graphglow"))]
assert not foreign, f"a wheel of the package and nothing else: {foreign}"
assert any(file.endswith("LICENSE") for file in files)

learner = graphglow.load_learner("universal")
data = graphglow.load_graph("wine")
result = graphglow.transfer(data, learner, graphglow.TransferConfig(epochs=20))
assert result.test_accuracy is not None
assert result.test_accuracy > 0.5
graphglow.write_graph(result.refined_graph(top_k=4), "refined.csv")

tool = [sys.executable, "-m", "graphglow"]
listed = subprocess.run([*tool, "datasets"], capture_output=True, text=True, check=True)
assert "universal" in listed.stdout + listed.stderr
refused = subprocess.run([*tool, "report", "none.jsonl", "--out", "r.html"], capture_output=True)
assert refused.returncode == 2, "without the extra, or the file, one sentence and status 2"
assert b"Traceback" not in refused.stderr
print("the wheel works")
