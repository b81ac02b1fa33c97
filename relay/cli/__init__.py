"""The command line `relay`: what `relay.client` can do, for people and for scripts. It needs nothing of the server."""
