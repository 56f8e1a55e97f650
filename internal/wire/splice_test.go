package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRewrite(t *testing.T) {
	const usage = "stream_options.include_usage"
	set := func(name, value string) Edit { return Edit{name, []byte(value)} }
	drop := func(name string) Edit { return Edit{Name: name} }
	for _, c := range []struct {
		body  string // without model and messages, which are prepended
		edits []Edit
		want  string
	}{
		{` , "seed" : 1.50 } `, nil, ` , "seed" : 1.50 } `},
		{`}`, []Edit{set(usage, "true")}, `,"stream_options":{"include_usage":true}}`},
		{" \n} ", []Edit{set(usage, "true")}, ",\"stream_options\":{\"include_usage\":true} \n} "},
		{`,"stream_options":null}`, []Edit{set(usage, "true")}, `,"stream_options":{"include_usage":true}}`},
		{`,"stream_options": { } }`, []Edit{set(usage, "true")}, `,"stream_options": {"include_usage":true } }`},
		{`,"stream_options":{ "x" : [1] } }`, []Edit{set(usage, "true")}, `,"stream_options":{ "x" : [1],"include_usage":true } }`},
		{`,"stream_options":{"include_usage" : false , "x":1}}`, []Edit{set(usage, "true")}, `,"stream_options":{"include_usage" : true , "x":1}}`},
		{`,"stream_options":{"include_usag\u0065":null}}`, []Edit{set(usage, "true")}, `,"stream_options":{"include_usag\u0065":true}}`},
		{`,"str\u0065am_options":{}}`, []Edit{set(usage, "true")}, `,"str\u0065am_options":{"include_usage":true}}`},
		{`,"n" :  2 , "stream":true }`, []Edit{set("n", "1"), set("stream", "false")}, `,"n" :  1 , "stream":false }`},
		{`,"n":2}`, []Edit{set("max_tokens", "5"), set("n", "3"), set("user", `"x"`)}, `,"n":3,"max_tokens":5,"user":"x"}`},
		{`,"n":2}`, []Edit{set("n", "3"), set("n", "4")}, `,"n":4}`},
		{`}`, []Edit{set("n", "3"), set("n", "4")}, `,"n":4}`},
		{`,"n":2}`, []Edit{set(usage, "true"), set("stream_options", "null")}, `,"n":2,"stream_options":null}`},
		{`,"stream_options":{"x":1}}`, []Edit{set("stream_options", "{}"), set(usage, "true")}, `,"stream_options":{}}`},
		{`,"n":2}`, []Edit{drop("n")}, `}`},
		{` , "n":2 , "user":"x" }`, []Edit{drop("n")}, ` , "user":"x" }`},
		{`,"n":2,"user":"x"}`, []Edit{drop("user"), drop("n"), drop("absent")}, `}`},
		{`,"max_tokens":5}`, []Edit{drop("max_tokens"), set("max_completion_tokens", "5")}, `,"max_completion_tokens":5}`},
		{`,"n":2}`, []Edit{drop(usage)}, `,"n":2}`},
		{`}`, []Edit{set(`odd"name`, "1")}, `,"odd\"name":1}`},
	} {
		head := `{"model":"m", "messages" : [{"content":"\u0061 \/"}]`
		r := scanChat(t, head+c.body)
		got := string(r.Rewrite(c.edits...).Bytes())
		if got != head+c.want {
			t.Errorf("%s, %s:\n got %s\nwant %s", c.body, c.edits, strings.TrimPrefix(got, head), c.want)
		}
	}
}

func TestRewriteTheFirstMembers(t *testing.T) {
	r := scanChat(t, ` { "model" : "m" , "messages":[{}] } `)
	for _, c := range []struct {
		edits []Edit
		want  string
	}{
		{[]Edit{{Name: "model"}}, ` { "messages":[{}] } `},
		{[]Edit{{Name: "model"}, {Name: "messages"}}, ` {  } `},
		{[]Edit{{Name: "model"}, {Name: "messages"}, {"n", []byte("1")}}, ` { "n":1 } `},
		{[]Edit{{Name: "model"}, {"n", []byte("1")}}, ` { "messages":[{}],"n":1 } `},
		{[]Edit{{Name: "messages"}, {"n", []byte("1")}}, ` { "model" : "m","n":1 } `},
	} {
		if got := string(r.Rewrite(c.edits...).Bytes()); got != c.want {
			t.Errorf("%s: %s, want %s", c.edits, got, c.want)
		}
	}
}

func TestBody(t *testing.T) {
	body := []byte(`{` + ok + `,"n":1}`)
	r, err := Scan(ChatCompletions, body, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if same := r.Rewrite().Bytes(); &same[0] != &body[0] || len(same) != len(body) {
		t.Error("the body without edits is a copy")
	}
	for _, b := range []Body{r.Rewrite(), r.Rewrite(Edit{"n", []byte("22")}, Edit{"user", []byte(`"x"`)}), {}} {
		checkReaders(t, b)
	}
}

// checkReaders checks that all ways to read a body return the same bytes.
func checkReaders(t testing.TB, b Body) {
	t.Helper()
	want := b.Bytes()
	if b.Len() != int64(len(want)) {
		t.Errorf("Len = %d, want %d", b.Len(), len(want))
	}
	var direct bytes.Buffer
	if n, err := b.Reader().(io.WriterTo).WriteTo(&direct); err != nil || n != b.Len() || !bytes.Equal(direct.Bytes(), want) {
		t.Errorf("WriteTo: %d, %v, %q", n, err, direct.Bytes())
	}
	if err := iotest.TestReader(b.Reader(), want); err != nil {
		t.Error(err)
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add(`{`+ok+`, "n" : 1, "stream_options":{"a":1}} `, "n", "2", "user", `"x"`, true)
	f.Add(`{`+ok+`}`, "model", "", "messages", "", false)
	f.Add(`{`+ok+`,"stream_options":null}`, "stream_options", `{"include_usage":false}`, "", "", true)
	f.Fuzz(func(t *testing.T, body, name1, value1, name2, value2 string, usage bool) {
		r, err := Scan(ChatCompletions, []byte(body), Limits{})
		if err != nil {
			t.Skip()
		}
		edits := []Edit{{Name: name1}, {Name: name2}}
		for i, value := range []string{value1, value2} {
			if value != "" {
				edits[i].JSON = []byte(value)
			}
			if value != "" && !accepts([]byte(value), true) || !utf8Valid(edits[i].Name) || edits[i].Name == includeUsage {
				t.Skip()
			}
		}
		if usage {
			edits = append(edits, Edit{includeUsage, []byte("true")})
		}
		b := r.Rewrite(edits...)
		checkReaders(t, b)
		if !accepts(b.Bytes(), true) {
			t.Fatalf("not a document: %s", b.Bytes())
		}
		if got, want := decode(t, b.Bytes()), edited(t, []byte(body), edits); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %v\nwant %v", b.Bytes(), got, want)
		}
	})
}

func utf8Valid(s string) bool { return strings.ToValidUTF8(s, "") == s }

func decode(t *testing.T, b []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

// edited is the expected result of Rewrite on decoded values.
func edited(t *testing.T, body []byte, edits []Edit) any {
	m := decode(t, body).(map[string]any)
	overruled := false
	for _, e := range edits {
		switch {
		case e.Name == includeUsage:
			options, ok := m["stream_options"].(map[string]any)
			if !ok {
				options = map[string]any{}
			}
			if !overruled {
				options["include_usage"] = true
				m["stream_options"] = options
			}
		case e.JSON == nil:
			delete(m, e.Name)
		default:
			m[e.Name] = decode(t, e.JSON)
		}
		overruled = overruled || e.Name == "stream_options"
	}
	return m
}
