//! Calls between tags such as `<tool_call>`, in JSON or in markup: the first character tells.

use std::sync::Arc;

use super::block::{Block, End};
use super::markup::{Form, Markup};
use super::{Reader, Schemas, Step, is_blank};
use crate::chat::ToolCall;

#[derive(Debug)]
pub(super) struct Tagged {
    form: Form,
    schemas: Arc<Schemas>,
    reader: Option<Box<dyn Reader>>, // of what begins behind the blanks
}

impl Tagged {
    pub fn new(form: Form, schemas: &Arc<Schemas>) -> Self {
        Self { form, schemas: schemas.clone(), reader: None }
    }
}

impl Reader for Tagged {
    fn read(&mut self, block: &[u8]) -> Step {
        if let Some(reader) = &mut self.reader {
            return reader.read(block);
        }
        let reader: Box<dyn Reader> = match block[block.len() - 1] {
            byte if is_blank(byte) => return Step::More,
            b'{' | b'[' => Box::new(Block::new(End::Tag { close: self.form.close, again: self.form.open })),
            _ => Box::new(Markup::new(self.form, &self.schemas, block.len() - 1)),
        };
        self.reader.insert(reader).read(block)
    }

    fn finish(&mut self, block: &[u8]) -> Step {
        self.reader.as_mut().map_or(Step::Failed, |reader| reader.finish(block))
    }

    fn cut(&mut self, block: &[u8]) -> Step {
        self.reader.as_mut().map_or(Step::Failed, |reader| reader.cut(block))
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        self.reader.as_mut().map_or_else(Vec::new, |reader| reader.calls())
    }
}
