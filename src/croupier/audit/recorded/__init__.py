"""Audits of updates that any engine recorded, or of views that a party of a deployment kept: `audited` attacks them."""
