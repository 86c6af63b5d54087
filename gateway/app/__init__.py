"""The composition root: builds everything, starts it in one order and stops it in another.

Commands import what they need of it by module, so that none of them loads the whole gateway.
"""
