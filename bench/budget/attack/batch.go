package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"slices"
	"time"
)

// batchFile uploads a batch of 40 lines with a budget for 10, and waits until nothing more is sold.
var batchFile = Attack{
	Name: "batch", Title: "a batch file of 40 lines, budget for 10",
	Setup: Setup{Budget: 10 * batchCall.Most()},
	Run: func(a *Arena) error {
		kind, body := a.lines(40)
		id := field(a.Send(Call{}, http.MethodPost, "files", kind, body), "id")
		request := fmt.Sprintf(`{"input_file_id": %q, "endpoint": "/v1/chat/completions", "completion_window": "24h"}`, id)
		created := a.Send(Call{}, http.MethodPost, "batches", "application/json", []byte(request))
		a.count(0, created.Verdict)
		if created.Verdict != Served {
			a.Note("the batch was refused: " + string(created.Body))
			return nil
		}
		path := "batches/" + field(created, "id")
		sold, quiet := -1, 0
		for range 60 { // until it has ended, or sold nothing for 3 s
			a.Wait(500 * time.Millisecond)
			status := field(a.Send(Call{}, http.MethodGet, path, "application/json", nil), "status")
			if slices.Contains([]string{"completed", "failed", "expired", "cancelled"}, status) {
				return nil
			}
			if now := len(a.Mock.Sales()); now == sold {
				quiet++
			} else {
				sold, quiet = now, 0
			}
			if sold > 0 && quiet == 6 {
				break
			}
		}
		a.Note("the batch is cancelled")
		a.Send(Call{}, http.MethodPost, path+"/cancel", "application/json", nil)
		a.Wait(time.Second)
		return nil
	},
}

var batchCall = Call{Input: 50, Output: 300}

func (a *Arena) lines(n int) (kind string, body []byte) {
	var text bytes.Buffer
	for i := range n {
		_, call := batchCall.body(a.marker(0), a.Gateway.Manifest.Call.ModelPrefix)
		fmt.Fprintf(&text, `{"custom_id": "line-%d", "method": "POST", "url": "/v1/chat/completions", "body": %s}`+"\n", i, call)
	}
	var out bytes.Buffer
	form := multipart.NewWriter(&out)
	_ = form.WriteField("purpose", "batch")
	file, err := form.CreateFormFile("file", "lines.jsonl")
	if err == nil {
		_, err = file.Write(text.Bytes())
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		panic(err) // into memory
	}
	return form.FormDataContentType(), out.Bytes()
}

func field(o Outcome, name string) string {
	var in map[string]any
	_ = json.Unmarshal(o.Body, &in)
	text, _ := in[name].(string)
	return text
}
