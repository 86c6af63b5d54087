"""The configured channels: opened, supervised, replaced when their settings change."""
