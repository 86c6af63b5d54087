"""Approvals, grants, secrets and pins, and the audit trail."""
