"""The HTTP server of the page: access control, routes, rollout index, labelling, and the event stream."""
