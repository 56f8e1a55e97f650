package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// fileMark is the prefix of a secret that is the content of a file.
const fileMark = "file:"

// maxSecret is far larger than any key or certificate.
const maxSecret = 64 << 10

// literal records a secret whose text is in the configuration itself.
func (d *document) literal(path string, n ast.Node) {
	text := ""
	switch n := n.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.LiteralNode:
		text = n.Value.Value
	}
	if !strings.Contains(text, "${") && !strings.HasPrefix(text, fileMark) {
		d.literals = append(d.literals, path)
	}
}

// secret resolves file:PATH to the content of the file, without the final line break. Relative
// paths start at the configuration's directory.
func (d *document) secret(text string) (string, error) {
	path, ok := strings.CutPrefix(text, fileMark)
	if !ok {
		return text, nil
	}
	if !d.files {
		return "", errors.New("file: works only in the configuration file")
	}
	if path == "" {
		return "", errors.New("file: has no path; write file:/run/secrets/NAME")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.mistakes.name), path)
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %s", path)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("this user cannot read %s", path)
	case err != nil:
		return "", fmt.Errorf("cannot read the secret: %w", err)
	}
	content := strings.TrimRight(string(data), "\r\n")
	switch {
	case len(data) > maxSecret:
		return "", fmt.Errorf("%s has %d bytes; a secret has at most %d", path, len(data), maxSecret)
	case content == "":
		return "", fmt.Errorf("%s is empty", path)
	case !utf8.ValidString(content):
		return "", fmt.Errorf("%s is not text", path)
	case strings.TrimSpace(content) != content:
		return "", fmt.Errorf("the contents of %s have leading or trailing spaces", path)
	}
	return content, nil
}
