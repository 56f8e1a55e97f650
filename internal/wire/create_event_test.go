package wire

import "testing"

// TestCreateEvent: a message becomes the body of a request, with the conversation so far in place of a response's id.
func TestCreateEvent(t *testing.T) {
	for _, c := range []struct{ text, earlier, want string }{
		{`{"type":"response.create","model":"m","stream":false,"background":true,"input":"x"}`, "none", `{"stream":true,"model":"m","input":"x"}`},
		{`{"store":false,"input":[ {} ],"previous_response_id":"r"}`, "none", `{"stream":true,"store":false,"input":[ {} ],"previous_response_id":"r"}`},
		{`{"input":[ {"a":1} ],"previous_response_id":"r"}`, `{"b":2}`, `{"stream":true,"input":[{"b":2},{"a":1}]}`},
		{`{"input":"x","previous_response_id":"r"}`, "", `{"stream":true,"input":[{"type":"message","role":"user","content":"x"}]}`},
		{`{"input":[],"previous_response_id":"r"}`, `{"b":2}`, `{"stream":true,"input":[{"b":2}]}`},
		{`{"generate":false,"input":[]}`, "none", `{"stream":true,"input":"-"}`},
	} {
		e, err := ParseCreateEvent([]byte(c.text))
		earlier := []byte(c.earlier)
		if c.earlier == "none" {
			earlier = nil
		}
		body := e.Body(earlier)
		if got := string(body.Bytes()); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for item, want := range map[string]string{
		`{"id":"msg_1","type":"message","content":[]}`:              `{"type":"message","content":[]}`,
		`{"type":"reasoning","id":"rs_1","summary":[]}`:             "",
		`{"type":"reasoning","id":"rs_1","encrypted_content":"e"}`:  `{"type":"reasoning","encrypted_content":"e"}`,
		`{"type":"reasoning","id":"rs_1","encrypted_content":null}`: "",
		`[]`: "",
	} {
		if got := string(InputItem([]byte(item))); got != want {
			t.Errorf("%s: got %q, want %q", item, got, want)
		}
	}
}
