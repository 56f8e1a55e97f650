package escape

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü 漢 👩\u200D💻": "plain ü 漢 👩\u200D💻", "a\u202Eb": `a\u202Eb`, "a\x1b[2Jb": `a\u001B[2Jb`, "a\nb": `a\u000Ab`,
		"\u2066x\u2069": `\u2066x\u2069`, "\u2028": `\u2028`, "\x7f\u0085": `\u007F\u0085`, "bad \xff byte": "bad \xff byte",
	} {
		if got := Text(text); got != want {
			t.Errorf("Text(%+q): got %+q, want %+q", text, got, want)
		}
	}
	if got := Lines("a\n\tb\r\u202E"); got != "a\n\tb\r"+`\u202E` {
		t.Errorf("Lines: got %+q", got)
	}
	if got := Quoted("<!here> `x` http://e.example & \u202E"); got != "`&lt;!here&gt; 'x' http://e.example &amp; "+`\u202E`+"`" {
		t.Errorf("Quoted: got %q", got)
	}
	var out bytes.Buffer
	w := NewCSV(&out)
	if err := w.WriteAll([][]string{{"a\u202E", "b"}}); err != nil || out.String() != `a\u202E,b`+"\n" {
		t.Errorf("CSV: got %q, error %v", out.String(), err)
	}
}

// TestWritersEscape: whatever writes CSV, HTML pages or text for chats does it through this package.
func TestWritersEscape(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if slash := filepath.ToSlash(path); strings.HasPrefix(slash, "../../test/") || strings.HasPrefix(slash, "../../bench/") ||
			strings.HasSuffix(slash, "/escape/escape.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		has := func(part string) bool { return bytes.Contains(text, []byte(part)) }
		if has("csv.NewWriter(") || has(`"html/template"`) && has("template.New(") || has(`map[string]string{"text": `) {
			seen++
			if !has("escape.Lines(") {
				t.Errorf("%s writes CSV, HTML or chat messages without escape.NewCSV or escape.Lines", path)
			}
		}
		return nil
	})
	if err != nil || seen < 3 {
		t.Errorf("found %d writers, error %v, want at least 3", seen, err)
	}
}
