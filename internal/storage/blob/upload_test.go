package blob

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// fakeParts is a bucket that supports multipart uploads.
type fakeParts struct {
	mu        sync.Mutex
	requests  []string // method and part
	parts     map[int][]byte
	completed []int
	open      int // parts being received
	mostOpen  int

	fail func(request string, before int) (status int, code string) // status 0: success
}

func (f *fakeParts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	request := r.Method
	switch {
	case q.Has("uploads"):
		request += " uploads"
	case q.Has("partNumber"):
		request += " part " + q.Get("partNumber")
	case q.Has("uploadId"):
		request += " upload " + q.Get("uploadId")
	}
	body, err := f.receive(r)
	if err != nil {
		panic(http.ErrAbortHandler) // the client aborted the request
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := 0
	for _, seen := range f.requests {
		if seen == request {
			before++
		}
	}
	f.requests = append(f.requests, request)
	if f.fail != nil {
		if status, code := f.fail(request, before); status != 0 {
			refuse(w, status, code)
			return
		}
	}
	switch {
	case q.Has("uploads"):
		_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
	case q.Has("partNumber"):
		n, _ := strconv.Atoi(q.Get("partNumber"))
		f.parts[n] = body
		w.Header().Set("ETag", fmt.Sprintf("%q", "etag"+q.Get("partNumber")))
	case r.Method == http.MethodPost:
		f.complete(w, body)
	}
}

func (f *fakeParts) receive(r *http.Request) ([]byte, error) {
	f.mu.Lock()
	f.open++
	f.mostOpen = max(f.mostOpen, f.open)
	f.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	f.open--
	f.mu.Unlock()
	return body, err
}

func (f *fakeParts) complete(w http.ResponseWriter, body []byte) {
	var list struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(body, &list); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	for _, p := range list.Part {
		if p.ETag != fmt.Sprintf("%q", "etag"+strconv.Itoa(p.PartNumber)) {
			refuse(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		f.completed = append(f.completed, p.PartNumber)
	}
	_, _ = io.WriteString(w, "<CompleteMultipartUploadResult/>")
}

func (f *fakeParts) count(request string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, seen := range f.requests {
		if seen == request {
			n++
		}
	}
	return n
}

func openParts(t *testing.T, f *fakeParts) *Store {
	f.parts = map[int][]byte{}
	return fakeS3(t, f.ServeHTTP)
}

// writeStore writes a blob and commits it.
func writeStore(ctx context.Context, s *Store, data []byte) error {
	w, err := s.Create(ctx, "acme/large")
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

// inParts returns the content of a blob of n parts, the last one shorter.
func inParts(n int) []byte {
	data := make([]byte, (n-1)*partSize+1000)
	for i := range data {
		data[i] = byte(i / 1000)
	}
	return data
}

// TestParts: a large blob is sent in parts, a few concurrently, and each part is retried
// separately.
func TestParts(t *testing.T) {
	f := &fakeParts{fail: func(request string, before int) (int, string) {
		if before == 0 && request != "DELETE upload u1" {
			return http.StatusServiceUnavailable, "SlowDown"
		}
		return 0, ""
	}}
	s := openParts(t, f)
	data := inParts(6)
	if err := writeStore(t.Context(), s, data); err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 2, 3, 4, 5, 6}; !slices.Equal(f.completed, want) {
		t.Errorf("got parts %v, want %v", f.completed, want)
	}
	got := slices.Concat(f.parts[1], f.parts[2], f.parts[3], f.parts[4], f.parts[5], f.parts[6])
	if !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, want the %d that were written", len(got), len(data))
	}
	if len(f.parts[1]) < 5<<20 {
		t.Errorf("got a part of %d bytes, want at least 5 MiB", len(f.parts[1]))
	}
	if f.mostOpen > partsOpen {
		t.Errorf("got %d parts at once, want at most %d", f.mostOpen, partsOpen)
	}
	if n := f.count("DELETE upload u1"); n != 0 {
		t.Errorf("got %d aborts of an upload that succeeded", n)
	}
}

// TestSmallUpload: a blob that fits into one part is sent in one request.
func TestSmallUpload(t *testing.T) {
	for _, size := range []int{0, 10, partSize} {
		f := &fakeParts{}
		s := openParts(t, f)
		if err := writeStore(t.Context(), s, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if want := []string{"PUT"}; !slices.Equal(f.requests, want) {
			t.Errorf("%d bytes: got requests %q, want %q", size, f.requests, want)
		}
	}
}

// TestPartsAborted: an upload that fails at any point is aborted in the bucket, where its parts
// would cost money.
func TestPartsAborted(t *testing.T) {
	for _, failing := range []struct {
		request string
		status  int
		code    string
	}{
		{"PUT part 1", http.StatusForbidden, "AccessDenied"},
		{"PUT part 3", http.StatusInternalServerError, "InternalError"},
		{"POST upload u1", http.StatusBadRequest, "InvalidPart"},
		{"POST upload u1", http.StatusOK, "AccessDenied"},
		{"POST upload u1", http.StatusOK, "InternalError"},
	} {
		f := &fakeParts{fail: func(request string, _ int) (int, string) {
			if request == failing.request {
				return failing.status, failing.code
			}
			return 0, ""
		}}
		s := openParts(t, f)
		err := writeStore(t.Context(), s, inParts(3))
		var refused *s3Error
		if !errors.As(err, &refused) || refused.Code != failing.code {
			t.Errorf("%s: got %v, want %s", failing.request, err, failing.code)
		}
		if got := f.count("DELETE upload u1"); got != 1 {
			t.Errorf("%s: got %d aborts, want 1", failing.request, got)
		}
		if len(f.completed) != 0 {
			t.Errorf("%s: the upload was completed", failing.request)
		}
	}
}

// TestPartsCancelled: so is one whose context is cancelled.
func TestPartsCancelled(t *testing.T) {
	f := &fakeParts{}
	s := openParts(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Create(ctx, "acme/large")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(inParts(3)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Commit(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	if got := f.count("DELETE upload u1"); got != 1 {
		t.Errorf("got %d aborts, want 1", got)
	}
}

// TestIdentityOfTwo: if two processes set the identity of a bucket concurrently, the second
// uses that of the first.
func TestIdentityOfTwo(t *testing.T) {
	var condition string
	reads := 0
	s := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		own := r.URL.Path == "/files/"+identityName
		switch {
		case own && r.Method == http.MethodPut:
			condition = r.Header.Get("If-None-Match")
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		case own && reads == 0:
			reads++
			refuse(w, http.StatusNotFound, "NoSuchKey")
		case own:
			_, _ = io.WriteString(w, "of the first")
		}
	})
	if got, err := s.Identity(t.Context()); got != "of the first" || err != nil {
		t.Errorf("got %q and %v, want that of the first", got, err)
	}
	if condition != "*" {
		t.Errorf("got condition %q of the write, want *", condition)
	}
}
