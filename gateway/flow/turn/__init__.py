"""One turn of the agent: how it is opened, run and finished."""
