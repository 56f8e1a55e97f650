package guard

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"net/http"

	"github.com/llmguard/llmguard/internal/wire"
)

// sniffed is a body whose first bytes were read ahead.
type sniffed struct {
	*bufio.Reader
	io.Closer
}

// isStream reports whether an answer is an event stream, whatever it is labelled, and also if none was
// requested. It waits for the first byte that is not white space.
func (c *Call) isStream(resp *http.Response) bool {
	traits := c.Plan.Request.Endpoint.Traits()
	may := c.Plan.Request.Stream || traits.Shows
	if isEventStream(resp.Header) {
		return may
	}
	if !may || traits.Makes == wire.Sound {
		return false
	}
	ahead := bufio.NewReaderSize(resp.Body, 1<<10)
	resp.Body = sniffed{ahead, resp.Body}
	for n := 1; n <= ahead.Size(); n++ {
		head, err := ahead.Peek(n)
		head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xEF\xBB\xBF")), " \t\r\n")
		if err != nil || len(head) > 0 && (bytes.IndexByte([]byte("deir:"), head[0]) < 0 || len(head) >= len("data:")) {
			return looksLikeEvents(head)
		}
	}
	return false
}

func isEventStream(h http.Header) bool {
	text := h.Get("Content-Type")
	if text == "application/json" { // nearly always; parsing would allocate
		return false
	}
	kind, _, err := mime.ParseMediaType(text)
	return err == nil && kind == "text/event-stream"
}

// looksLikeEvents reports whether a text starts with a line of an event stream.
func looksLikeEvents(head []byte) bool {
	for _, field := range []string{"data:", "event", ":", "id:", "retry"} {
		if bytes.HasPrefix(head, []byte(field)) {
			return true
		}
	}
	return false
}
