"""What the page is sent: one Struct per JSON object, one module per family of screens.

Screens return these, `encode.py` turns them into JSON, and `typescript.py` writes `web/src/types.ts` from them.
A number that does not exist is None. Text that a model, a dataset or a person wrote is passed on as it is.
"""
