package escape

import (
	"bytes"
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
