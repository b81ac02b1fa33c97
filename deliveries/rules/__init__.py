"""What the settings of an endpoint must keep: `columns` (each by itself), `auth` and `certificates` (those with parts),
`together` (one beside another). Everything here reads; nothing is stored."""
