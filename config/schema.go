package config

import _ "embed"

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of the file, for editors. It knows
// names, types and choices; what only Parse can see, it lets pass.
func Schema() []byte { return schema }
