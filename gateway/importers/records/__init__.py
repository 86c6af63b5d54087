"""From files to records, and from records into the store: what all sources share."""
