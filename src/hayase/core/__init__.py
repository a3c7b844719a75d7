"""What everything else stands on: errors, time, schemas, declarations, expressions, keys, the contract of a stage."""
