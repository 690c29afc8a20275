"""The data of each screen of the page: one file per screen, each a function from an open run to a payload.

The server, the report and the notebook use the same functions, so they show the same. `view/payloads/` documents every
field.
"""
