package wire

import (
	"encoding/json"
	"testing"
)

func TestRenamed(t *testing.T) {
	for in, want := range map[string]string{
		`{"id":"resp_a","x":[{"id":"keep"}],"background":false}`: `{"id":"resp_b","x":[{"id":"keep"}],"background":true}`,
		`{"x":1}`: `{"x":1}`, `nonsense`: `nonsense`, ``: ``,
	} {
		if got := string(Renamed([]byte(in), "resp_b")); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestParseEvent(t *testing.T) {
	e, err := ParseEvent([]byte(`{"sequence_number":4,"response":{"background":false,"id":"a","n":1},"type":"response.completed","item":{"id":"a"}}`), "b")
	want := "event: response.completed\ndata: " + `{"sequence_number":12,"response":{"background":true,"id":"b","n":1},"type":"response.completed","item":{"id":"a"}}` + "\n\n"
	if got := string(e.Append(nil, 12)); err != nil || got != want || e.Sequence != 4 || !e.Final() {
		t.Errorf("%s, %+v, %v", got, e, err)
	}
	if _, err := ParseEvent([]byte("[DONE]"), "b"); err == nil {
		t.Error("no event taken for one")
	}
	stream := "event: x\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"a\"}}\n\ndata: {\"type\":\"response.incomplete\",\"response\":{\"id\":\"c\"}}\n\n"
	if got := string(FinalResponse([]byte(stream))); got != `{"id":"c"}` {
		t.Errorf("final response %s", got)
	}
	if got := FinalResponse([]byte(stream[:60])); got != nil {
		t.Errorf("final response of a cut stream %s", got)
	}
}

func TestPending(t *testing.T) {
	request := `{"model":"m","input":"secret","metadata":{"a":"b"},"temperature":null,"tools":[{"type":"function","name":"f"}]}`
	var v map[string]any
	if err := json.Unmarshal(Pending([]byte(request), "resp_1", "failed", 7, BadRequest("", "c", "m \"q\"")), &v); err != nil {
		t.Fatal(err)
	}
	if v["id"] != "resp_1" || v["status"] != "failed" || v["model"] != "m" || v["temperature"] != 1.0 || v["usage"] != nil || v["input"] != nil ||
		v["metadata"].(map[string]any)["a"] != "b" || v["error"].(map[string]any)["message"] != `m "q"` || len(v["tools"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
	if !json.Valid(Pending(nil, "resp_1", "queued", 7, nil)) {
		t.Error("not JSON without a request")
	}
}
