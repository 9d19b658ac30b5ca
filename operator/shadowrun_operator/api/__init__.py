"""The resource: models of spec and status, conditions, and the generator of the CRD. Pure: no I/O, no clock."""
