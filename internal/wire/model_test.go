package wire

import "testing"

// TestModelNamesAreOneLine: a name with control characters is refused wherever it is, because it
// would become part of keys, labels and lines.
func TestModelNamesAreOneLine(t *testing.T) {
	for _, name := range []string{"a\x00", "a\nb", "\r", "\x1bm", "a\x7f", "a\u0085", "a\u2028b"} {
		quoted := string(appendQuoted(nil, name))
		checkRefused(t, ChatCompletions, `{"model":`+quoted+`,"messages":[{"role":"user","content":"x"}]}`, "model", "invalid_value", "control characters")
		checkRefused(t, Embeddings, `{"model":`+quoted+`,"input":"x"}`, "model", "invalid_value", "control characters")
		checkRefused(t, Responses, `{"model":`+quoted+`,"input":"x"}`, "model", "invalid_value", "control characters")
		if _, err := ScanFor(ChatCompletions, name, []byte(`{"messages":[{"role":"user","content":"x"}]}`), Limits{}); err == nil {
			t.Errorf("%q in the path was taken", name)
		}
	}
	if _, err := Scan(Embeddings, []byte(`{"model":"org/modèle:1 β","input":"x"}`), Limits{}); err != nil {
		t.Errorf("a name in another script: %v", err)
	}
}
