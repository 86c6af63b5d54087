import subprocess
import sys

SCRIPT = """
import sys, threading
from pydantic import BaseModel
from channels.telegram.sdk import load_aiogram
assert "aiogram" not in sys.modules
before = dict(vars(BaseModel)), dict(BaseModel.model_config), list(sys.meta_path)
threads = [threading.Thread(target=load_aiogram) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert (dict(vars(BaseModel)), dict(BaseModel.model_config), list(sys.meta_path)) == before
from aiogram import methods, types
assert not types.Update.__pydantic_complete__
user = {"id": 1, "is_bot": False, "first_name": "A"}
raw = {"message_id": 1, "date": 1, "chat": {"id": 1, "type": "private"}, "from": user, "text": "hi"}
assert types.Update.model_validate({"update_id": 1, "message": raw}).message.from_user.id == 1
assert types.Update.__pydantic_complete__
models = [getattr(module, name) for module in (types, methods) for name in module.__all__]
models = [model for model in models if isinstance(model, type) and issubclass(model, BaseModel)]
for model in models:
    model.model_rebuild()
assert len(models) > 400 and all(model.__pydantic_complete__ for model in models)
"""


def test_aiogram_is_imported_late_light_and_complete() -> None:
    """In a process of its own, for an import happens once."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
