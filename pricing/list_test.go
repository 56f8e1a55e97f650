package pricing

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDetectForm(t *testing.T) {
	for text, want := range map[string]string{
		`[{"id": "openai", "models": []}]`:                        "genai-prices",
		`{"sample_spec": 1, "m": {"litellm_provider": "openai"}}`: "litellm",
		`{"openai": {"id": "openai", "models": {"m": {}}}}`:       "models.dev",
		"- model: m\n  prices: [{input: 1, output: 1}]":           "yaml",
		`[{model: m, prices: [{input: 1, output: 1}]}]`:           "yaml",
		"models: []": "yaml", "": "yaml", "{}": "yaml", `{"m": {"price": 1}}`: "yaml",
	} {
		if got := DetectForm([]byte(text)); got != want {
			t.Errorf("%s is taken for %s", text, got)
		}
	}
}

// TestEveryFormIsRead: a list in each format is recognized by its content, and can be compared with
// the built-in prices.
func TestEveryFormIsRead(t *testing.T) {
	lists := map[string][]byte{"csv": []byte("model,provider,input,output\nm,p,1,2\n")}
	for form, file := range map[string]string{"genai-prices": "genai.json", "litellm": "litellm.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		lists[form] = text
	}
	for _, form := range FeedForms() {
		text := lists[form.Name]
		list, err := ReadList(text, "")
		if err != nil || list.Form != form.Name || len(list.Feed.Entries) == 0 {
			t.Errorf("%s: %v, %v", form.Name, list, err)
			continue
		}
		if _, _, partial, err := list.Against(time.Now()); err != nil || !partial {
			t.Errorf("%s against the built-in prices: partial %v, %v", form.Name, partial, err)
		}
	}
}

// TestUpdateKeepsWhatTheListDoesNotState: a model missing in the list is not changed, one without a
// price yet is added only on request, and changed entries replace those with the same name.
func TestUpdateKeepsWhatTheListDoesNotState(t *testing.T) {
	entries := func(text string) []Entry {
		list, err := ParseEntries([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	old := entries("[{provider: p, model: a, prices: [{input: 1, output: 2}]}, {provider: p, model: b, prices: [{input: 1, output: 1}]}]")
	c, err := New("usd", old)
	if err != nil {
		t.Fatal(err)
	}
	list := entries("[{provider: p, model: a, prices: [{input: 3, output: 2}]}, {provider: p, model: c, prices: [{input: 1, output: 1}]}]")
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, add := range []bool{false, true} {
		u, err := c.Update(list, day, day, add)
		if err != nil {
			t.Fatal(err)
		}
		changed, compared := 1, 1
		if add {
			changed, compared = 2, 2
		}
		if len(u.Changed) != changed || u.Compared != compared || u.Changed[0].Model != "a" || u.Differences[0].Field != "input" {
			t.Errorf("add %v: %+v", add, u)
		}
		if all := u.Onto(old); len(all) != changed+1 || all[changed].Model != "b" {
			t.Errorf("add %v onto the old ones: %+v", add, all)
		}
	}
}
