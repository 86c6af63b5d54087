"""Skills: folders of `.agents/skills`, each with instructions in its SKILL.md."""
