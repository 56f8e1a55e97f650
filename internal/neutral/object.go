package neutral

import (
	"reflect"
	"strconv"
	"strings"
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

// Member returns a member of an object, which it aliases, as Read does; nil if there is none.
func Member(object []byte, name string) (value Raw) {
	_ = wire.EachMember(object, func(other, v []byte) error { // what is no object has no members
		if string(other) == name && string(v) != "null" {
			value = v
		}
		return nil
	})
	return value
}

// Each reads the objects of an array with Read. param names the array in errors, and read gets the name of each object.
// Nothing is read of an absent array.
func Each[T any](array Raw, param string, read func(param string, object *T) error) error {
	if array == nil {
		return nil
	}
	err := wire.EachItem(array, func(i int, value []byte) error {
		object := new(T)
		if err := Read(value, object); err != nil {
			return err
		}
		return read(param+"["+strconv.Itoa(i)+"]", object)
	})
	return WrongType(err, param)
}

var types sync.Map // of reflect.Type: the index of each field by its name in JSON

func namesOf(t reflect.Type) map[string]int {
	if names, ok := types.Load(t); ok {
		return names.(map[string]int)
	}
	names := map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names[name] = i
	}
	types.Store(t, names)
	return names
}
