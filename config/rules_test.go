package config_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llmguard/llmguard/config"
)

// Required sections, for cases about something else.
const (
	someProviders = "providers: [{id: openai, base_url: \"https://api.openai.com/v1\"}]\n"
	someOrgs      = "orgs: [{id: acme}]\n"
)

var variables = map[string]string{
	"PEPPER": "a pepper of sufficient length",
	"RPM":    "150k",
	"EMPTY":  "",
}

func lookup(name string) (string, bool) {
	value, ok := variables[name]
	return value, ok
}

// whole adds the required sections that a text lacks.
func whole(text string) string {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if !strings.Contains("\n"+text, "\nproviders:") {
		text += someProviders
	}
	if !strings.Contains("\n"+text, "\norgs:") {
		text += someOrgs
	}
	return text
}

func read(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("f.yaml", []byte(whole(text)), lookup)
	if err != nil {
		t.Fatalf("%s\ngot error %v, want none", text, err)
	}
	return cfg
}

// refusals returns the errors of a text.
func refusals(t *testing.T, text string) config.Errors {
	t.Helper()
	_, err := config.Parse("f.yaml", []byte(whole(text)), lookup)
	if err == nil {
		t.Errorf("got no error, want one for\n%s", text)
		return nil
	}
	all, ok := errors.AsType[config.Errors](err)
	if !ok {
		t.Fatalf("got an error of type %T, want config.Errors", err)
	}
	return all
}

// place is a range that a case marks with « and » in its text.
type place struct{ line, column, width int }

// unmark removes the marks from a text and returns what they enclose.
func unmark(text string) (string, place) {
	before, rest, _ := strings.Cut(text, "«")
	inside, after, _ := strings.Cut(rest, "»")
	lastLine := before[strings.LastIndexByte(before, '\n')+1:]
	return before + inside + after, place{
		line:   1 + strings.Count(before, "\n"),
		column: 1 + utf8.RuneCountInString(lastLine),
		width:  utf8.RuneCountInString(inside),
	}
}

// wrongFile is a text with one mistake, marked with « and ».
type wrongFile struct{ name, text, path, message string }

// checkWrong compares the only error of a text with its case: the path, the whole message, the
// place, and the carets below the line.
func checkWrong(t *testing.T, cases []wrongFile) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text, at := unmark(c.text)
			all := refusals(t, text)
			if len(all) != 1 {
				t.Fatalf("got %d errors, want 1:\n%v", len(all), all)
			}
			got := all[0]
			if got.Path != c.path || got.Message != c.message {
				t.Errorf("got  %s: %s\nwant %s: %s", got.Path, got.Message, c.path, c.message)
			}
			if got.Line != at.line || got.Column != at.column {
				t.Errorf("got place %d:%d, want %d:%d", got.Line, got.Column, at.line, at.column)
			}
			checkCaret(t, got, at)
		})
	}
}

// checkCaret checks the excerpt below a message: the carets are under the marked text.
func checkCaret(t *testing.T, e *config.Error, at place) {
	t.Helper()
	lines := strings.Split(e.Error(), "\n")
	if len(lines) != 3 || utf8.RuneCountInString(e.Source) > 140 {
		return
	}
	_, carets, _ := strings.Cut(lines[2], "| ")
	got := place{e.Line, 1 + strings.IndexByte(carets, '^'), strings.Count(carets, "^")}
	if got != at {
		t.Errorf("got carets at %+v, want %+v:\n%s", got, at, e)
	}
}
