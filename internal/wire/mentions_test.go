package wire

import (
	"errors"
	"slices"
	"testing"
)

// TestScanMentions: mentions are found anywhere in a request about things, but not in the caller's
// own words.
func TestScanMentions(t *testing.T) {
	t.Parallel()
	const id = "file-0123456789abcdef"
	for body, want := range map[string]Mentions{
		``:   {},
		`{}`: {},
		`{"name":"` + id + `","metadata":{"file_id":"f"},"attributes":{"a":"` + id + `"},"query":"` + id + `","filters":{"value":"` + id + `"}}`: {},
		`{"file_ids":["a","b"]}`:                                   {Refs: []Ref{{Kind: ObjectFile, ID: "a", Param: "file_ids"}, {Kind: ObjectFile, ID: "b", Param: "file_ids"}}},
		`{"files":[{"file_id":"a","attributes":{"file_id":"b"}}]}`: {Refs: []Ref{{Kind: ObjectFile, ID: "a", Param: "files[0].file_id"}}},
		`{"part_ids":["p"]}`:                                       {Refs: []Ref{{Kind: ObjectUploadPart, ID: "p", Param: "part_ids"}}},
		`{"skills":[{"skill_id":"s"}],"memory_limit":"4g"}`:        {Refs: []Ref{{Kind: ObjectSkill, ID: "s", Param: "skill_id"}}, MemoryLimit: "4g"},
		`{"purpose":"vision"}`:                                     {Purpose: "vision"},
		`{"items":[{"role":"user","content":[{"type":"input_image","file_id":"a"},{"type":"input_file","file_id":"b"}]}]}`: {
			Refs: []Ref{
				{Kind: ObjectFile, ID: "a", Param: "items[0].content[0].file_id", Picture: true},
				{Kind: ObjectFile, ID: "b", Param: "items[0].content[1].file_id"},
			},
			Items: 102, Pictures: 1, Documents: 1,
		},
		`{"items":[{"type":"item_reference","id":"i"}]}`: {Refs: []Ref{{Kind: ObjectItem, ID: "i", Param: "items[0].id"}}, Items: 36},
	} {
		got, err := ScanMentions([]byte(body), Limits{})
		refs := slices.Equal(got.Refs, want.Refs)
		if got.Refs, want.Refs = nil, nil; err != nil || !refs || !equalCounts(got, want) {
			t.Errorf("%s: got %+v (references as wanted: %v), %v; want %+v", body, got, refs, err, want)
		}
	}
	for body, code := range map[string]string{
		`{"file_ids":["a"],"file_ids":["b"]}`: "duplicate_parameter",
		`{"Memory_Limit":"4g"}`:               "ambiguous_parameter",
		`{"items":"x","items ":1`:             "",
		`[1]`:                                 "",
	} {
		var e *Error
		if _, err := ScanMentions([]byte(body), Limits{}); !errors.As(err, &e) || e.Status != 400 || e.Code != code {
			t.Errorf("%s: got %v, want a 400 with the code %q", body, err, code)
		}
	}
}

func equalCounts(a, b Mentions) bool {
	return a.Items == b.Items && a.Pictures == b.Pictures && a.Documents == b.Documents && a.Purpose == b.Purpose && a.MemoryLimit == b.MemoryLimit
}

// TestAnswerNamesContainers: each container in which code ran is returned once.
func TestAnswerNamesContainers(t *testing.T) {
	t.Parallel()
	answer := `{"id":"resp_1","output":[{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_1"},
		{"type":"code_interpreter_call","id":"ci_2","container_id":"cntr_1"},{"type":"message","id":"msg_1"}],
		"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`
	got, ok := ParseUsage(Responses, []byte(answer))
	if !ok || !slices.Equal(got.Containers, []string{"cntr_1"}) {
		t.Errorf("got the containers %v, want cntr_1", got.Containers)
	}
}
