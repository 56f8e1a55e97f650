package ledger

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestEntryJSON: entries equal the output of encoding/json, whichever fields are set. It fails when
// a new field is missing.
func TestEntryJSON(t *testing.T) {
	texts := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z0-9./:-]{1,20}`), rapid.String(), rapid.SampledFrom([]string{`"`, `\`, "<&>", "\x00", "\u2028", "\xff"}))
	labelTexts := rapid.SampledFrom([]Labels{"", "project=mobile", "run=(other),session=a=b:c/@+=~#%._-"})
	rapid.Check(t, func(r *rapid.T) {
		var entry struct {
			Call
			Details
		}
		fill(r, reflect.ValueOf(&entry).Elem(), texts)
		entry.Labels = labelTexts.Draw(r, "labels")
		want, err := json.Marshal(entry)
		if err != nil {
			r.Fatal(err)
		}
		if got := OpenEntry(entry.Call, entry.Details) + "}"; got != string(want) {
			r.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// fill gives every field a random value, often zero.
func fill(r *rapid.T, v reflect.Value, texts *rapid.Generator[string]) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch f.Kind() {
		case reflect.Struct:
			fill(r, f, texts)
		case reflect.String:
			f.SetString(texts.Draw(r, name))
		case reflect.Bool:
			f.SetBool(rapid.Bool().Draw(r, name))
		case reflect.Int, reflect.Int64:
			f.SetInt(rapid.OneOf(rapid.Just[int64](0), rapid.Int64()).Draw(r, name))
		case reflect.Slice:
			n := rapid.IntRange(0, 3).Draw(r, name)
			f.Set(reflect.MakeSlice(f.Type(), n, n))
			for k := range n {
				fill(r, f.Index(k), texts)
			}
		default:
			r.Fatalf("%s is a %s", name, f.Kind())
		}
	}
}

func BenchmarkEntryJSON(b *testing.B) {
	c := Call{ID: "01m7xccy6q2px92qm85323m13e", Attempt: 1, Org: "acme", User: "alice", Key: "k1", IP: "10.0.0.1", Model: "gpt-4o", Provider: "openai", Endpoint: "chat.completions", PriceVersion: "2026-11"}
	d := Details{Outcome: "completed", Status: 200, UpstreamID: "req_0123456789", ServiceTier: "default", TookMS: 812, Usage: Usage{Input: 812, Output: 64, Requests: 1}, Costs: Costs{Input: 812_000, Output: 64_000}}
	for b.Loop() {
		OpenEntry(c, d)
	}
}
