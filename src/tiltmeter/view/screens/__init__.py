"""The data of each screen of the page: one file per screen, each a function from an open run to plain JSON.

The server, the report and the notebook use the same functions, so they show the same. `web/src/types.ts` documents
every field.
"""
