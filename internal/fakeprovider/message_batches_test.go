package fakeprovider_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// messageBatch is a batch in Anthropic's format.
type messageBatch struct {
	ID      string
	Status  string                                                          `json:"processing_status"`
	Counts  struct{ Processing, Succeeded, Errored, Canceled, Expired int } `json:"request_counts"`
	Results *string                                                         `json:"results_url"`
}

func (f *fake) createMessages(texts ...string) (b messageBatch) {
	f.t.Helper()
	var list []string
	for i, text := range texts {
		list = append(list, fmt.Sprintf(`{"custom_id":"m%d","params":%s}`, i+1, claudeBody(text, "")))
	}
	f.get(200, &b, "POST", "/messages/batches", `{"requests":[`+strings.Join(list, ",")+`]}`, claudeHeader...)
	return b
}

// TestMessageBatches: a batch shows its counts at the end, has a result for each request, can be cancelled and, once
// it has ended, deleted.
func TestMessageBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{})
		f.ScriptBatches(func(int) fakeprovider.BatchScript { return fakeprovider.BatchScript{Each: time.Second} })
		b := f.createMessages("hi", "hi", "[fake: status=529]", "hi", "hi")
		path := "/messages/batches/" + b.ID
		time.Sleep(1500 * time.Millisecond)
		f.get(200, &b, "GET", path, "", claudeHeader...)
		if b.Status != "in_progress" || b.Counts.Processing != 5 || b.Results != nil {
			t.Errorf("while it runs: %+v", b)
		}
		f.get(200, &b, "POST", path+"/cancel", "", claudeHeader...)
		if w := f.do("DELETE", path, "", claudeHeader...); b.Status != "canceling" || w.Code != http.StatusNotFound {
			t.Errorf("after it was cancelled: %+v; deleted with %d", b, w.Code)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		f.get(200, &b, "GET", path, "", claudeHeader...)
		if b.Status != "ended" || b.Counts.Succeeded != 3 || b.Counts.Errored != 1 || b.Counts.Canceled != 1 || b.Results == nil {
			t.Errorf("at the end: %+v", b)
		}
		text := f.do("GET", path+"/results", "", claudeHeader...).Body.String()
		for _, want := range []string{`"type":"succeeded"`, `"service_tier":"batch"`, `"type":"overloaded_error"`, `"type":"canceled"`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		var list struct{ Data []messageBatch }
		f.get(200, &list, "GET", "/messages/batches?limit=5", "", claudeHeader...)
		f.get(200, &b, "DELETE", path, "", claudeHeader...)
		if w := f.do("GET", path, "", claudeHeader...); len(list.Data) != 1 || w.Code != http.StatusNotFound {
			t.Errorf("the list has %+v, the deleted batch %d", list.Data, w.Code)
		}
	})
}

// TestMessageBatchRefused: requests that Anthropic does not run in batches are refused.
func TestMessageBatchRefused(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	for _, request := range []string{
		`{"custom_id":"a b","params":{}}`, `{"custom_id":"a","params":{}},{"custom_id":"a","params":{}}`, ``,
		`{"custom_id":"a","params":{"stream":true}}`, `{"custom_id":"a","params":{"max_tokens":0}}`, `{"custom_id":"a","params":{"speed":"fast"}}`,
	} {
		var fault claudeFault
		f.get(400, &fault, "POST", "/messages/batches", `{"requests":[`+request+`]}`, claudeHeader...)
	}
}
