package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// answerPatience is how long a plain answer waits for memory. It has been paid for.
const answerPatience = 30 * time.Second

// dropBody releases the request's bytes, which are not needed once the provider answers: a
// stream may take hours.
func (c *Call) dropBody(sent func()) {
	if c.Plan.translated() { // the answer is built from the request, too
		c.Plan.sent.Body = nil
		return
	}
	c.Plan.Request.Body, c.Plan.sent.Body = nil, nil
	if sent != nil {
		sent()
	}
}

// receive reads a whole answer in the caller's form and bills it. A large answer is kept in
// a file and is in memory only while its usage is read.
func (e *upstreamCall) receive(resp *http.Response, kept *spool.Buffer) error {
	c := e.call
	if err := fill(resp, kept); err != nil {
		return err
	}
	body, err := kept.Bytes()
	if err == nil {
		err = e.settlePlain(body)
	}
	if c.Plan.translated() && err == nil {
		body, err = e.translated(body, kept)
	}
	if err != nil {
		return err
	}
	return redactFailure(e.redact, kept, body)
}

// translated replaces an answer in the provider's form, which is settled, with one in the caller's. The error is a
// *wire.Error.
func (e *upstreamCall) translated(answer []byte, kept *spool.Buffer) ([]byte, error) {
	from, to := e.wires(false)
	body, err := neutral.Whole(answer, from, to)
	if err == nil {
		err = kept.Replace(body)
	}
	if err != nil {
		return nil, wire.BadGateway("The provider's answer cannot be translated. The call was charged", err)
	}
	a, _ := wire.ParseUsage(e.call.Plan.Request.Endpoint, body)
	e.note(a)
	return body, nil
}

// redactFailure redacts a whole answer that reports a failure, and leaves it in its file.
func redactFailure(redact providers.Redactor, kept *spool.Buffer, body []byte) error {
	clean := redact.Failure(body)
	if !bytes.Equal(clean, body) {
		return kept.Replace(clean)
	}
	kept.Unload()
	return nil
}

func fill(resp *http.Response, kept *spool.Buffer) error {
	if resp.ContentLength > wire.MaxAnswer {
		return errAnswerTooLarge
	}
	if err := kept.Expect(resp.ContentLength); err != nil {
		return err
	}
	err := kept.Fill(io.LimitReader(resp.Body, wire.MaxAnswer+1))
	if err == nil && kept.Size() > wire.MaxAnswer {
		err = errAnswerTooLarge
	}
	return err
}

var errAnswerTooLarge = fmt.Errorf("the answer is larger than %d bytes", wire.MaxAnswer)

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
	fields := []string{"data:", "event", ":", "id:", "retry"}
	return slices.ContainsFunc(fields, func(field string) bool { return bytes.HasPrefix(head, []byte(field)) })
}
