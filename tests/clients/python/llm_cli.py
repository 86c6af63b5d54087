"""llm: a prompt on the command line, with an entry in extra-openai-models.yaml."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as home:
    entry = (
        f"- model_id: claw\n  model_name: default\n  api_base: {os.environ['OPENAI_BASE_URL']}\n  api_key_name: claw\n"
    )
    Path(home, "extra-openai-models.yaml").write_text(entry)
    environ = {**os.environ, "LLM_USER_PATH": home}
    command = [sys.executable, "-m", "llm", "--key", os.environ["OPENAI_API_KEY"], "-m", "claw", "hello mk701x"]
    told = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=540, stdin=subprocess.DEVNULL, check=True
    )
assert "fin701x" in told.stdout, told
