#![no_main]

whin_fuzz::fuzzer!(gguf);
