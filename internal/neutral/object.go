package neutral

import (
	"reflect"
	"sync"

	"github.com/llmguard/llmguard/internal/wire"
)

// Read sets the fields of a struct, which are of type Raw with the tag "json", to the members of an object, which
// they alias. Unlike a decoder it copies nothing, so that a long request is in memory once, and a wrong
// type is no error: servers differ, and whoever uses a value looks at it first. The error says that it is
// no object, which has no members.
func Read(object []byte, into any) error {
	fields := reflect.ValueOf(into).Elem()
	fields.SetZero()
	names := namesOf(fields.Type())
	return wire.EachMember(object, func(name, value []byte) error {
		if i, ok := names[string(name)]; ok && string(value) != "null" {
			fields.Field(i).SetBytes(value)
		}
		return nil
	})
}

var types sync.Map // of reflect.Type: the index of each field by its name in JSON

func namesOf(t reflect.Type) map[string]int {
	if names, ok := types.Load(t); ok {
		return names.(map[string]int)
	}
	names := map[string]int{}
	for i := range t.NumField() {
		names[t.Field(i).Tag.Get("json")] = i
	}
	types.Store(t, names)
	return names
}
