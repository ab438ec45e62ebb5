"""The public contract between makai and anything that runs an agent: types and interfaces only, no I/O (DM-PROV-002).

`makai.harness` exports these names. JSON is camelCase with the field names of the contract, Python is snake_case.
"""
