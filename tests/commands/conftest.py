from tests.flow.conftest import model, path, workspace

__all__ = ["model", "path", "workspace"]
