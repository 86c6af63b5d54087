"""Tools as files: folders of `.agents/tools`, each with a TOOL.md that declares what can be called."""
