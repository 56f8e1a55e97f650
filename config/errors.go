package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Error is one mistake in the file.
type Error struct {
	File    string
	Line    int    // from 1; 0 if the error concerns no line
	Column  int    // from 1, in characters
	Path    string // such as providers[0].base_url; empty at the top level
	Message string // what is wrong and, if known, what to write instead
	Source  string // the line of the file, secrets masked
	width   int    // of the marked place
}

// Error returns place and message on one line, then the source line with carets under the place:
//
//	llmguard.yaml:12:5: providers[0]: unknown field "base_ulr"; did you mean "base_url"?
//	   12 |     base_ulr: https://api.openai.com/v1
//	      |     ^^^^^^^^
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Message)
	if text := e.Excerpt(); text != "" {
		b.WriteString("\n" + text)
	}
	return b.String()
}

// Excerpt returns the source line with carets under the place; empty if there is no line.
func (e *Error) Excerpt() string {
	if strings.TrimSpace(e.Source) == "" {
		return ""
	}
	source, column := e.Source, e.Column
	if runes := []rune(source); len(runes) > 140 { // a window around the caret
		from := max(0, min(column-40, len(runes)-140))
		source, column = string(runes[from:from+140]), column-from
	}
	return fmt.Sprintf("%5d | %s\n%5s | %s", e.Line, source, "", caret(source, column, e.width))
}

// Errors are all mistakes in one file, in the order of its lines.
type Errors []*Error

// Error returns all errors, one block each, followed by their number if there are several.
func (es Errors) Error() string {
	const most = 50
	var b strings.Builder
	for i, e := range es {
		if i == most {
			fmt.Fprintf(&b, "... and %d more\n", len(es)-most)
			break
		}
		b.WriteString(e.Error() + "\n")
	}
	if len(es) > 1 {
		fmt.Fprintf(&b, "%d errors in %s", len(es), es[0].File)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Unwrap returns the single errors, for errors.As.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

func (es Errors) sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
}

// caret repeats the tabs of the source, so that carets align in a terminal.
func caret(source string, column, width int) string {
	var b strings.Builder
	left := 0
	for _, c := range source {
		left++
		if left >= column {
			break
		}
		if c != '\t' {
			c = ' '
		}
		b.WriteRune(c)
	}
	room := utf8.RuneCountInString(source) - left + 1
	b.WriteString(strings.Repeat("^", max(1, min(width, room))))
	return b.String()
}

// Patterns of text in the file that must not appear in errors: values of fields that hold secrets,
// even misspelled ones, and texts in the format of keys or of passwords in URLs.
var (
	secretField = regexp.MustCompile(`(?i)[a-z_-]*(?:secret|pas+[a-z]*d|passw|api_?k|token|authorization)[a-z_-]*["']?\s*:\s+["']?`)
	secretText  = regexp.MustCompile(`\b(?:sk|gsk|lg_[a-z]+|whsec)[-_][\w+/=-]{8,}`)
	secretList  = regexp.MustCompile(`(?i)((?:secrets?|pas+[a-z]*d|api_?k[a-z]*)["']?\s*:\s+\[)[^\]{]+`)
	chatURL     = regexp.MustCompile(`(\bhooks\.slack\.com/)[^\s"'},]+`)
	urlPassword = regexp.MustCompile(`(://[^\s:/]*:)\S+@`)
)

// mask hides secrets in a line of the file. For a secret field it hides the rest of the line,
// unless that refers to the environment or a file, or is a list or mapping.
func mask(line string) string {
	if m := secretField.FindStringIndex(line); m != nil {
		if value := line[m[1]:]; value != "" && !strings.HasPrefix(value, "${") && !strings.HasPrefix(value, fileMark) &&
			!strings.ContainsAny(value[:1], "[{&*#|>") {
			line = line[:m[1]] + "****"
		}
	}
	line = secretList.ReplaceAllString(line, "${1}****")
	line = secretText.ReplaceAllString(line, "****")
	line = chatURL.ReplaceAllString(line, "${1}****")
	return urlPassword.ReplaceAllString(line, "${1}****@")
}
