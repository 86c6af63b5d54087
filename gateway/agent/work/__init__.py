"""Tasks, schedules, approvals and agents: the rules that hold whether a chat, a page or the terminal asks."""
