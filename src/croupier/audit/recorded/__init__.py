"""Audits of updates that any engine recorded in a folder: `files` reads it, `audited` attacks what it holds."""
