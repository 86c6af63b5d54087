"""The processes between the workshop and a command, which become it and watch over it, and the rights they give up."""
