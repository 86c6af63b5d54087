"""SupaClaw: one AI agent of your own, behind the messengers you already use."""
