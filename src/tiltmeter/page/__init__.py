"""What the page is told: one file per screen, each a function from an open run to plain JSON.

The server, the report and the notebook all ask here, so that they cannot disagree. `web/src/types.ts` names every
field.
"""
