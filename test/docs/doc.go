// Package docs keeps the Markdown files correct. Its tests check links, names and examples
// against the code, and generate the configuration reference and its JSON Schema from the
// comments and tags of package config.
package docs

//go:generate go test -run "^(TestConfigReference|TestConfigSchema|TestOperationsReference)$" -update .
