package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// exportFiles are the files of a place while this process holds the lock on them.
type exportFiles struct {
	dir    string
	suffix string // of their names: .jsonl, or .23.jsonl for part 23 of an org
	lock   *os.File
}

// openExport locks the files of a place in its org's directory, creating that if needed. If another
// process holds the lock, the error is errNotOurs.
func openExport(dir, place string) (*exportFiles, error) {
	org, part := SplitPlace(place)
	number := ""
	if part > 1 {
		number = "." + strconv.Itoa(part)
	}
	if !filepath.IsLocal(org) || strings.ContainsAny(org, `/\`) || org == "." {
		return nil, fmt.Errorf("ledger: export: org id %q cannot name a folder", org)
	}
	folder := filepath.Join(dir, org)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fmt.Errorf("ledger: export: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, ".lock"+number), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger: export: %w", err)
	}
	if err := tryLock(lock); err != nil {
		lock.Close()
		return nil, err
	}
	return &exportFiles{dir: folder, suffix: number + ".jsonl", lock: lock}, nil
}

// close releases the lock, as the end of the process would.
func (f *exportFiles) close() { _ = f.lock.Close() }

// append writes entries to the files of their days, skipping those already there, and returns how
// many it wrote. They are synced to disk when it returns.
func (f *exportFiles) append(list []Entry, died func(string) error) (int, error) {
	written := 0
	for len(list) > 0 {
		day, n := dayOf(list[0]), 1
		for n < len(list) && dayOf(list[n]) == day {
			n++
		}
		w, err := appendDay(filepath.Join(f.dir, day+f.suffix), list[:n], died)
		written += w
		if err != nil {
			return written, fmt.Errorf("ledger: export: %w", err)
		}
		list = list[n:]
	}
	return written, nil
}

// dayOf returns the UTC day on which an entry was added to the ledger.
func dayOf(e Entry) string {
	ms, _, _ := strings.Cut(e.LedgerID, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return time.UnixMilli(n).UTC().Format(time.DateOnly)
}

func appendDay(path string, list []Entry, died func(string) error) (n int, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	have, err := repair(file, list[0].LedgerID)
	if err != nil {
		return 0, err
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, e := range list {
		if have[e.LedgerID] {
			continue
		}
		if err := enc.Encode(e); err != nil {
			return 0, err
		}
		n++
	}
	if n == 0 {
		return 0, nil
	}
	if err := died("writing"); err != nil {
		_, _ = file.Write(lines.Bytes()[:lines.Len()*2/3])
		return 0, err
	}
	if _, err := file.Write(lines.Bytes()); err != nil {
		return 0, err
	}
	return n, file.Sync()
}

// tailSize exceeds the length of nearly every line.
const tailSize = 64 << 10

// repair cuts off an unfinished line and returns the ids of lines from first on. It reads only the
// end of the file unless such lines exist.
func repair(file *os.File, first string) (map[string]bool, error) {
	last, end, size, err := lastLine(file, tailSize)
	if err != nil {
		return nil, err
	}
	if end < size {
		if err := file.Truncate(end); err != nil {
			return nil, err
		}
	}
	if id, ok := lineID(last); !ok || earlier(id, first) {
		return nil, nil
	}
	return idsFrom(file, first)
}

// lastLine returns the last finished line, where it ends, and the file's size.
func lastLine(file *os.File, window int64) (line []byte, end, size int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, 0, 0, err
	}
	size = info.Size()
	from := max(0, size-window)
	tail := make([]byte, size-from)
	if _, err := file.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, size, err
	}
	stop := bytes.LastIndexByte(tail, '\n')
	begin := bytes.LastIndexByte(tail[:max(stop, 0)], '\n') + 1
	if begin == 0 && from > 0 {
		return lastLine(file, 4*window) // the line is longer than the window
	}
	return tail[begin:max(stop, 0)], from + int64(stop) + 1, size, nil
}

// idsFrom reads the whole file for the ids of lines from `first` on.
func idsFrom(file *os.File, first string) (map[string]bool, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	have := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		if id, ok := lineID(lines.Bytes()); ok && !earlier(id, first) {
			have[id] = true
		}
	}
	return have, lines.Err()
}

// lineID reads the ledger id that a line begins with.
func lineID(line []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"ledger_id":"`))
	if !ok {
		return "", false
	}
	id, _, ok := bytes.Cut(rest, []byte(`"`))
	return string(id), ok
}

// earlier reports whether ledger id a comes before b, of the same part.
func earlier(a, b string) bool { return compareIDs(a, b) < 0 }

// compareIDs compares ledger ids of the same part. Their numbers have no leading zeros, so that a longer one is larger.
func compareIDs(a, b string) int {
	aMS, aN, _ := strings.Cut(a, "-")
	bMS, bN, _ := strings.Cut(b, "-")
	return cmp.Or(cmp.Compare(len(aMS), len(bMS)), strings.Compare(aMS, bMS), cmp.Compare(len(aN), len(bN)),
		strings.Compare(aN, bN))
}
