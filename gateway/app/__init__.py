"""The composition root: builds all parts, starts them in one order and stops them in another.

Commands import single modules of it, so that no command loads the whole gateway.
"""
