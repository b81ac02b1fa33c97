-- Under which keys the secrets of endpoints are sealed. Only the beginning of a token is read: its key's id.

-- fragment: tokens
-- The keys under which what an endpoint has is sealed, one row for each token; reads: endpoint.
SELECT CASE WHEN substr(sealed.token, 1, 13) ~ '^[0-9a-f]{12}[.]$' THEN substr(sealed.token, 1, 12) ELSE '' END AS key_id
FROM (VALUES (endpoint.secret_sealed), (endpoint.secret_headers_sealed), (endpoint.auth_sealed),
             (endpoint.client_key_sealed)) AS sealed (token)
WHERE sealed.token <> ''
UNION ALL
SELECT substr(former.one ->> 'sealed', 1, 12) FROM jsonb_array_elements(endpoint.former_secrets) AS former (one)
WHERE (former.one ->> 'until')::timestamptz > clock_timestamp()

-- name: key_ids
-- How many tokens name each key. One that is no token at all is counted under an empty id.
SELECT named.key_id, count(*) AS tokens, count(DISTINCT endpoint.endpoint_id) AS endpoints
FROM deliveries_endpoint AS endpoint CROSS JOIN LATERAL ({{resealing.tokens}}) AS named
GROUP BY named.key_id ORDER BY named.key_id

-- name: lost
-- The keys that are named by what is in use, and are not in the ring; and how many endpoints need each.
SELECT named.key_id, count(*) AS tokens, count(DISTINCT endpoint.endpoint_id) AS endpoints
FROM deliveries_endpoint AS endpoint CROSS JOIN LATERAL ({{resealing.tokens}}) AS named
WHERE endpoint.deleted_at IS NULL AND named.key_id <> ALL(%(ring)b::text[])
GROUP BY named.key_id ORDER BY named.key_id

-- name: stale
-- A stretch of the endpoints in key order of which something is sealed under another key than the current one.
SELECT endpoint.endpoint_id, endpoint.secret_sealed, endpoint.secret_headers_sealed, endpoint.auth_sealed,
       endpoint.client_key_sealed, endpoint.former_secrets::text AS former_secrets, clock_timestamp() AS now
FROM deliveries_endpoint AS endpoint
WHERE endpoint.endpoint_id > %(after)s::uuid
  AND EXISTS (SELECT FROM ({{resealing.tokens}}) AS named WHERE named.key_id <> %(current)s::text)
ORDER BY endpoint.endpoint_id LIMIT %(batch)s::int
